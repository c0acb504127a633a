"""Removes the database's credentials from the fork server, which imports this before a trainable: a trial
needs only the store's.
"""

import os

from resources.execution.child_environment import without_credentials

for _name in os.environ.keys() - without_credentials(os.environ).keys():
    del os.environ[_name]
