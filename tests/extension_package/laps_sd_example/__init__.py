"""A policy, predictors, a feature set and an importer, one file each, as another package would bring them."""
