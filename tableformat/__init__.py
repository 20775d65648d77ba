"""What a table is on both sides, and what may happen to it. Opens nothing."""

from tableformat.own_modules import check_own_modules

check_own_modules()
