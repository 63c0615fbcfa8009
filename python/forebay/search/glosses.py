# SPDX-License-Identifier: Apache-2.0
"""Vectors of real text: the glosses of WordNet 3.0, which explain its synsets in a sentence each.

The words of a gloss are weighed by TF-IDF, and truncated singular value decomposition reduces the weights to a few
components ("latent semantic analysis"). Both are those of scikit-learn.
"""

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from forebay._buffers import whole
from forebay.errors import RefusedInput
from forebay.graph import wordnet

_TERMS_MAX = 20_000
_IN_GLOSSES_MIN = 3  # a word that stands in fewer tells nothing about their neighbours
_POWER_ITERATIONS = 3


def gloss_vectors(dimension: int = 128, *, directory: Path | None = None, seed: int = 0) -> npt.NDArray[np.float32]:
    """Makes a vector of each gloss, of length 1; of zeros if the gloss has no word that others have.

    Args:
        dimension: The components of a vector, 1 to 1024.
        directory: The folder of WordNet's data files; None for the default.
        seed: Of the decomposition. The same arguments give the same vectors, with one version of scikit-learn.

    Returns:
        ``float32`` of shape ``(117659, dimension)``, in the order of ``forebay.graph.wordnet.load``.

    Raises:
        RefusedInput: The dimension is out of range, a file cannot be read, or scikit-learn is not installed.
    """
    if not 1 <= whole("dimension", dimension) <= 1024:
        raise RefusedInput("dimension", dimension, "must be 1 to 1024")
    text, decomposition = (_scikit_learn(f"sklearn.{name}") for name in ("feature_extraction.text", "decomposition"))
    words = text.TfidfVectorizer(
        min_df=_IN_GLOSSES_MIN, max_features=_TERMS_MAX, sublinear_tf=True, dtype=np.float32
    ).fit_transform(wordnet.glosses(directory))
    reduced = decomposition.TruncatedSVD(dimension, n_iter=_POWER_ITERATIONS, random_state=seed).fit_transform(words)
    vectors: npt.NDArray[np.float32] = reduced.astype(np.float32)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)


def _scikit_learn(name: str) -> Any:  # noqa: ANN401 (a module)
    try:
        return importlib.import_module(name)
    except ImportError:
        remedy = "is not installed: pip install scikit-learn, or install forebay[search]"
        raise RefusedInput("scikit-learn", name, remedy) from None
