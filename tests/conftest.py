"""Simulated devices, cheap compilation and shape checking: all must be set before anything touches JAX."""

import os

# Tests compile many small programs and run each a few times: LLVM's optimiser costs more than it gains.
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_backend_optimization_level=0"

import jax
from jaxtyping import install_import_hook

jax.config.update("jax_num_cpu_devices", 8)
install_import_hook("symbnn", "beartype.beartype")
