"""Small estimators as sklearn-onnx writes them; a script that `exports` runs."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import skl2onnx
from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.ensemble import GradientBoostingRegressor, RandomForestClassifier
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsRegressor
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, PolynomialFeatures, StandardScaler
from sklearn.svm import SVC, SVR

FEATURES, ROWS = 6, 200


def estimators() -> Iterator[tuple[str, Any, bool]]:
    """Names, estimators, and whether they classify."""
    for activation in ("identity", "relu", "tanh", "logistic"):
        for hidden in ((16,), (16, 8)):
            settings = {"hidden_layer_sizes": hidden, "activation": activation, "max_iter": 30}
            yield f"MLPRegressor {activation} {len(hidden)}", MLPRegressor(**settings), False
            yield f"MLPClassifier {activation} {len(hidden)}", MLPClassifier(**settings), True
        scaled = make_pipeline(
            StandardScaler(), MLPRegressor(hidden_layer_sizes=(16,), activation=activation)
        )
        yield f"StandardScaler MLPRegressor {activation}", scaled, False
        reduced = make_pipeline(
            PCA(3), MLPClassifier(hidden_layer_sizes=(16,), activation=activation)
        )
        yield f"PCA MLPClassifier {activation}", reduced, True
    squares = make_pipeline(PolynomialFeatures(2), Ridge())
    yield "PolynomialFeatures Ridge", squares, False
    for regressor in (
        LinearRegression(), make_pipeline(MinMaxScaler(), LinearRegression()), SVR(),
        SVR(kernel="poly", degree=2), GradientBoostingRegressor(n_estimators=5),
        KNeighborsRegressor(), GaussianProcessRegressor(), KMeans(3, n_init=1),
    ):  # fmt: skip
        yield f"{type(regressor).__name__} {getattr(regressor, 'kernel', '')}", regressor, False
    for classifier in (
        LogisticRegression(), RandomForestClassifier(n_estimators=5), SVC(), GaussianNB(),
    ):  # fmt: skip
        yield type(classifier).__name__, classifier, True


def main(folder: Path) -> None:
    """Fit and convert all of them, in float32 and float64, with and without ZipMap."""
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    rows = rng.uniform(-1, 1, (ROWS, FEATURES))
    values = (rows**2).sum(axis=1)
    for name, estimator, classifies in estimators():
        labels = (values > np.median(values)).astype(np.int64) if classifies else values
        estimator.fit(rows, labels)
        kinds = {"float": FloatTensorType, "double": DoubleTensorType}
        for kind, of in kinds.items():
            for zipmap in (True, False) if classifies and kind == "float" else (True,):
                path = folder / f"{name.strip()} {kind}{'' if zipmap else ' no zipmap'}.onnx"
                options = {"zipmap": False} if not zipmap else {}
                try:
                    model = skl2onnx.to_onnx(
                        estimator,
                        initial_types=[("X", of([None, FEATURES]))],
                        options={id(estimator): options} if options else None,
                    )
                except (RuntimeError, ValueError, TypeError, NameError, NotImplementedError) as e:
                    print(f"{path.name}: {str(e).splitlines()[0]}", file=sys.stderr)
                    continue
                path.write_bytes(model.SerializeToString())
    print(f"skl2onnx {skl2onnx.__version__}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
