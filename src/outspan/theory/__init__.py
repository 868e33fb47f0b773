"""The linear model of arXiv:2005.00695, exactly: what a transformed sample does to the error of an estimator.

float64 numpy throughout, in the paper's letters: X [n, p], beta [p], lam, sigma, and z, what a sample adds outside the
span of the rows of X.
"""
