"""Trains seed 1's `simple_mnist_model` on handwritten digits and saves it with test digits.

scikit-learn's 1,797 digits of 8 x 8 pixels, scaled to 28 x 28. Needs
`pip install 'headrace[keras]' scikit-learn`; the files it writes are in this folder:

    python examples/digits/train.py
"""

from __future__ import annotations

import os
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np
from sklearn.datasets import load_digits

FOLDER = Path(__file__).parent


def to_28(images: np.ndarray) -> np.ndarray:
    """8 x 8 pixels in 0..16 as 28 x 28 x 1 in 0..1: each pixel 3 wide, 2 zeros around."""
    large = images.repeat(3, axis=1).repeat(3, axis=2)
    padded = np.pad(large, ((0, 0), (2, 2), (2, 2)))
    return (padded / 16).astype(np.float32)[..., None]


def simple_mnist_model(input_shape: tuple[int, ...]) -> keras.Model:
    """Seed 1's model: flatten, 128 neurons with ReLU, 10 with softmax."""
    model = keras.models.Sequential()
    model.add(keras.layers.Input(input_shape, name="image"))
    model.add(keras.layers.Flatten())
    model.add(keras.layers.Dense(128, activation="relu"))
    model.add(keras.layers.Dense(10, activation="softmax", name="digit"))
    return model


def main() -> None:
    keras.utils.set_random_seed(0)
    images, labels = load_digits(return_X_y=True)
    pixels = to_28(images.reshape(-1, 8, 8))
    order = np.random.default_rng(0).permutation(len(pixels))
    train, test = order[:1500], order[1500:]
    model = simple_mnist_model((28, 28, 1))
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(pixels[train], labels[train], epochs=25, batch_size=32, verbose=2)
    print("test accuracy", model.evaluate(pixels[test], labels[test], verbose=0)[1])
    # A fresh model holds no optimiser state: a third of the file.
    bare = simple_mnist_model((28, 28, 1))
    bare.set_weights(model.get_weights())
    bare.save(FOLDER / "digits.keras")
    np.savez_compressed(
        FOLDER / "digits.npz",
        images=images[test].reshape(-1, 8, 8).astype(np.uint8),
        labels=labels[test].astype(np.uint8),
    )


if __name__ == "__main__":
    main()
