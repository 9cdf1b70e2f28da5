__all__ = ['ttypes', 'constants', 'Metastore', 'Metastore2', 'Metastore3', 'Metastore4']
