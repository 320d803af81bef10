"""Program in, translations out: by what leaves may be moved freely, and which leaves make up for it."""

from symbnn.symmetry.discovery.translations.find import find_translations

__all__ = ["find_translations"]
