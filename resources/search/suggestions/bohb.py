"""Suggests as BOHB does (Falkner et al., ICML 2018)."""

from resources.search.suggestions.tpe import TpeSuggester


class BohbSuggester(TpeSuggester):
    """Asks TPE, which learns on the highest rung that enough trials have reached."""

    by_rung = True
