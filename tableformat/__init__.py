"""Models the tables of both sides and the operations on them; opens no file or connection."""

from tableformat.own_modules import check_own_modules

check_own_modules()
