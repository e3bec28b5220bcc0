# coding: latin-1
a = 'café'
b = 2
c = 'überß'
