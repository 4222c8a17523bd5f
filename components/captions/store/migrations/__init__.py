"""How the generation store's tables came to be, version by version; run by `components.captions.store.migration`.

Another version: a file in `versions/` that names the one before it, the tables in `components.captions.store.schema`
as they are afterwards, and `HEAD` there.
"""
