"""Loggers and callbacks for training frameworks; each module imports its framework and is imported by name.

``halving.integrations.lightning.HalvingLogger``, ``halving.integrations.huggingface.HalvingCallback``,
``halving.integrations.keras.HalvingCallback``, ``halving.integrations.accelerate.HalvingTracker``,
``halving.integrations.torchtune.HalvingLogger``. Each takes an existing ``run=``, or the arguments of
:func:`halving.init`. In a training of several processes a framework calls them on rank zero only: their own
run is that process's alone, and nothing that they call of yours is a collective.
"""
