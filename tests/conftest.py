"""Eight simulated devices and shape checking: both must be set before anything else touches JAX."""

import jax
from jaxtyping import install_import_hook

jax.config.update("jax_num_cpu_devices", 8)
install_import_hook("symbnn", "beartype.beartype")
