"""What the processes of one machine share on its disks: locks, and folders for what is being made.

It knows of no store and no run.
"""
