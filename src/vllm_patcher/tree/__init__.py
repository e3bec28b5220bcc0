"""One folder of an install, read and written; the only module that writes into an install.

Always true here: a path is walked folder by folder from the root and no link is followed on the
way, so nothing outside the root is ever written. A file is never opened for writing: a new one
is made beside it and renamed over its *lexical* name, because hard links and symlinks of a
package manager lead into a cache that other environments share. A reader sees the old bytes or
the new ones, never a part. :class:`ReadTree` has no method that writes: what gets one of these
can't change anything.
"""
