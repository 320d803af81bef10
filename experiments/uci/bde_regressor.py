"""bde's regressor on arrays from a file: run as a script by a Python that has bde, and not this project.

`python bde_regressor.py GIVEN FOUND`: GIVEN is an .npz file with `inputs`, `targets`, `test_inputs` and the
settings of `configs.uci.Peer`; into FOUND go, for every chain, draw and test row, mean and standard
deviation, and the seconds of fit and prediction, compiling included.

Its scale is softplus(second output) + 1e-6; the raw outputs are turned into it here as in its own predictor.
"""

import os
import resource
import sys
import time

import numpy as np


def main(given: str, found: str) -> None:
    """Fit, predict, and write what was found."""
    with np.load(given) as file:
        settings = {name: file[name] for name in file.files}
    num_members = int(settings["num_members"])
    devices = min(num_members, os.cpu_count() or 1)
    # As its documentation asks, before JAX is imported: members are spread over devices.
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"
    start = time.perf_counter()
    raw = _outputs(settings, num_members)
    means, scales = raw[..., 0], np.logaddexp(raw[..., 1], 0.0) + 1e-6
    used = resource.getrusage(resource.RUSAGE_SELF)
    np.savez(
        found,
        means=means,
        stds=scales,
        wall=time.perf_counter() - start,
        processor=used.ru_utime + used.ru_stime,
        version=_version(),
    )


def _outputs(settings: dict[str, np.ndarray], num_members: int) -> np.ndarray:
    """`(members, draws, rows, 2)`."""
    from bde import BdeRegressor
    from bde.loss import GaussianNLL

    regressor = BdeRegressor(
        n_members=num_members,
        hidden_layers=settings["hidden"].tolist(),
        loss=GaussianNLL(),
        activation=str(settings["activation"]),
        epochs=int(settings["num_epochs"]),
        validation_split=0.15,
        lr=1e-3,
        weight_decay=1e-4,
        patience=20,
        warmup_steps=int(settings["num_warmup"]),
        n_samples=int(settings["num_samples"]),
        n_thinning=int(settings["thinning"]),
        seed=int(settings["seed"]),
    )
    regressor.fit(settings["inputs"], settings["targets"][:, 0])
    return np.asarray(regressor.predict(settings["test_inputs"], raw=True), np.float64)


def _version() -> str:
    from importlib.metadata import version

    return ", ".join(f"{name} {version(name)}" for name in ("sklearn-contrib-bde", "blackjax", "jax"))


if __name__ == "__main__":
    main(*sys.argv[1:])
