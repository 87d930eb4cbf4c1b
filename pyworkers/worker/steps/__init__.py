"""The steps of a job before and after the code of the application, by name; chain.py has their order."""
