"""Log-likelihoods of rows, with their errors; the public names are those of `unnorm.evaluation`."""
