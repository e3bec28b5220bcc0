"""The verbs, a module each; a module is imported when its verb is used."""
