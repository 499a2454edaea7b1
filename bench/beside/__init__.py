import os

# The products of the formula are small: with threads, NumPy's BLAS takes ten times as long on a busy machine. It looks at this as it is loaded.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
