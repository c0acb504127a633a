"""A trainable whose module takes longer to import than a shortened lease lasts."""

import time

from tests.trainables import train

time.sleep(4)

__all__ = ["train"]
