"""Other libraries' models in, targets out; other samplers' draws in, fits out."""

from symbnn.interop.arviz_data import from_arviz
from symbnn.interop.blackjax_draws import from_blackjax
from symbnn.interop.numpyro_draws import from_numpyro
from symbnn.interop.numpyro_models import numpyro_target

__all__ = ["from_arviz", "from_blackjax", "from_numpyro", "numpyro_target"]
