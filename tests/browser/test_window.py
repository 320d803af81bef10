"""The window of the tests itself: it hears what a page says and sees whom it asks."""


def test_errors_and_requests_are_noticed(browser, tmp_path):
    page = tmp_path / "page.html"
    page.write_text("<!doctype html><p>Nothing.</p>")
    browser.open(page)
    assert browser.complaints() == []
    assert browser.requests_outside() == []
    page.write_text("<!doctype html><img src='http://127.0.0.1:9/a.png'><script>nothing.here</script>")
    browser.open(page)
    browser.wait(lambda: browser.run("return document.readyState === 'complete'"))
    assert any("nothing is not defined" in complaint for complaint in browser.complaints())
    assert browser.requests_outside() == ["http://127.0.0.1:9/a.png"]
