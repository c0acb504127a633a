"""Names of artifacts that are accepted."""

NAMES = [
    "Confusion matrix (épreuve 2) 50%.csv",
    "a+b=c&d.txt",
    "#3 résumé.md",
    "日本語.json",
    "model [best].pt",
    "it's.txt",
    '"quoted".txt',
    "what?.txt",
    "100%25.csv",
    ".hidden",
    "-dash",
    " space ",
    "a\\b",
    "e\u0301",
    "\u00e9",
    "A.txt",
    "a.txt",
    "x",
    "x-2d711642b726b044",  # as the record of a name would be called
    "木" * 640,
    "a" * 128,
    "a" * 129,
    "plots/loss.txt",
    "plots-loss.txt",
    "plots/a/b/..c/...",
]
