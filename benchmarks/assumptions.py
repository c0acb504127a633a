"""Assumptions about ten thousand concurrent trials, for the benchmarks and docs/scale.md."""

TRIALS = 10_000
SERIES = 100
LOGGED = 1.0  # calls of log() a second
RUNG = 600.0  # seconds from one rung to the next
GOES_ON = 1 / 3  # share of the trials that go on in place at a rung (asha with η = 3)
CHECKPOINT_GB = 0.1
KEPT_DAYS = 30  # of points at full resolution
LOG_STREAMS = 1  # of a pod's stdout and stderr that say anything
SLOTS = 64  # of one job
S3_ANSWER = 0.02  # seconds for a request
SWEEP = 250  # trials of a sweep, of which the policy keeps the checkpoints of the best
