"""Pages that are made when the site is built: tutorials, which are run, and results, which are copied.

A tutorial is run again only when its script or the library has changed; what it printed is kept in
`build/tutorials`. With `SYMBNN_DOCS_RUN=no` in the environment the tutorials are shown without their output,
for whoever writes text.
"""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from percent import Output, markdown

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "build" / "tutorials"
RESULTS = ("*.md", "*.png", "*/*/*.md", "*/*/*.png", "evidence/*.md", "evidence/*.png")


def on_files(files: Files, config: Any) -> Files:
    """Add the tutorials' pages and the results to what was found in docs/."""
    for script in sorted((ROOT / "docs" / "tutorials").glob("*.py")):
        text = script.read_text(encoding="utf-8")
        page, figures = markdown(text, outputs_of(script), script.stem)
        files.append(File.generated(config, f"tutorials/{script.stem}.md", content=page))
        for name, content in figures.items():
            files.append(File.generated(config, f"tutorials/{name}", content=content))
    results = {path for pattern in RESULTS for path in (ROOT / "results").glob(pattern)}
    for path in sorted(results):
        name = path.relative_to(ROOT).as_posix()
        files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def outputs_of(script: Path) -> list[Output] | None:
    """What the cells print and draw: kept from an earlier build, or found by running them."""
    if os.environ.get("SYMBNN_DOCS_RUN") == "no":
        return None
    kept = KEPT / f"{script.stem}-{_fingerprint(script)}.json"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        unfinished = kept.with_suffix(".part")
        command = [sys.executable, str(Path(__file__).with_name("percent.py")), str(script), str(unfinished)]
        subprocess.run(command, cwd=ROOT, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
        unfinished.rename(kept)
    found = json.loads(kept.read_text(encoding="utf-8"))
    return [Output(*output) for output in found["outputs"]]


def _fingerprint(script: Path) -> str:
    """Of all that may change what a script prints, but for other packages."""
    sources = [script, Path(__file__).with_name("percent.py"), *sorted((ROOT / "symbnn").rglob("*.py"))]
    return hashlib.sha256(b"\0".join(source.read_bytes() for source in sources)).hexdigest()[:16]
