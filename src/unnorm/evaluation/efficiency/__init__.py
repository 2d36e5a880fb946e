"""How much an estimator's parameters scatter: asymptotic covariances, as code.

Every function returns the covariance of sqrt(N) (theta_hat - theta*), so that estimators compare on equal data.
"""

