// Before the first paint: the theme that was chosen here. The page starts without it, so storage may be closed to us.
try {
  const chosen = localStorage.getItem("halving.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // A browser without storage has the theme of its system.
}
