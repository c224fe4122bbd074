"""From a request at arrival to numbers: the feature sets, and the parts they are made of.

A new set is one class derived from :class:`FeatureSet`. Files that end in ``fit`` learn and need scikit-learn or SciPy;
a server imports the others.
"""

from laps_sd.predictors.features.base import FeatureSet, feature_set
from laps_sd.predictors.features.lexical import LEXICAL_NAMES, lexical_features, words_of

__all__ = ["LEXICAL_NAMES", "FeatureSet", "feature_set", "lexical_features", "words_of"]
