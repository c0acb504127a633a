"""Loggers and callbacks for training frameworks; each module imports its framework and is imported by name.

``halving.integrations.lightning.HalvingLogger``, ``halving.integrations.huggingface.HalvingCallback``,
``halving.integrations.keras.HalvingCallback``. Each takes an existing ``run=``, or the arguments of :func:`halving.init`.
"""
