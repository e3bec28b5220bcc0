"""The verbs on every node of a cluster, and the reports of many hosts folded into one answer.

Always true here: what a node is asked is what one host is asked, by the same functions; nothing
is decided about a patch. Only :mod:`.raylets` knows Ray.
"""
