"""Removes the database's credentials when it is imported.

The fork server imports it before a trainable, because a trial needs only the store's credentials.
"""

import os

from resources.execution.child_environment import without_credentials

for _name in os.environ.keys() - without_credentials(os.environ).keys():
    del os.environ[_name]
