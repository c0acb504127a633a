"""The search: a deterministic state machine (:mod:`.brain` over :mod:`.state`), and the suggester of new trials (:mod:`.suggest`)."""
