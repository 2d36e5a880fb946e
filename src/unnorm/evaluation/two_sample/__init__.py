"""How far two samples are apart, with an error and a p-value; the public names are those of `unnorm.evaluation`."""
