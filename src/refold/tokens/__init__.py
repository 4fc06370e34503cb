"""Token counting, and tables of models: windows, calibration priors and prices."""
