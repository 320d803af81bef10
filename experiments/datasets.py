"""The data of a config."""

from configs.parts import Data
from symbnn import data


def labelled(settings: Data, *, seed: int, flatten: bool) -> tuple[data.Dataset, int]:
    """The data set that the settings describe, its parts drawn by `seed`, and how many classes it has."""
    loaded = data.load(
        settings.name,
        data_dir=settings.directory,
        flatten=flatten,
        num_train=settings.num_train,
        num_test=settings.num_test,
        seed=seed,
        resize=settings.image_side,
    )
    if loaded.num_classes is None:
        raise ValueError(f"--data.name {settings.name} has no classes; this study needs labels")
    return loaded, loaded.num_classes
