"""The paper's experiments as programs on the library `pairgrad`, of which they use public names only.

Data goes one way: recipe -> run -> record -> table or figure -> page. A table or figure is rebuilt from records without training.

- what is trained: `recipes`, `data`, `augment`, `models`, `training`, `runs` (directories that survive);
- what is measured of it: `evaluation`, `forks`, `captured` (states held still); `records` keeps it;
- what is shown: `tables`, `figures`, all by name in `catalogue`, `report` (all on one page);
- `commands`: what `pairgrad` offers where this is installed.
"""

__version__ = "0.1.0"
