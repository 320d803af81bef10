"""Other libraries' models in, targets out."""

from symbnn.interop.numpyro_models import numpyro_target

__all__ = ["numpyro_target"]
