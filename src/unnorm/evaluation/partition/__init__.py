"""log Z of an energy, by every method, with its error; the public names are those of `unnorm.evaluation`."""
