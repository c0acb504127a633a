"""The contract between a trial and its platform: context, objectives, bounds, messages and the mailbox that
carries them.

Both sides stand on it; it must not know the trial's run, nor the platform's database.
"""
