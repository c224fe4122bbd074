"""How exact predictions are: length, acceptance and execution time, on a bundle's later records or out-of-fold.

``run`` is `laps-sd evaluate`, ``figures`` computes what it prints, ``finished`` and ``out_of_fold`` predict the
records, ``plots`` draws. Importing a name loads scikit-learn and SciPy, so nothing is exported here.
"""
