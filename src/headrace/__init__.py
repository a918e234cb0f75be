"""Headrace compiles models ahead of time and runs them inside a memory budget."""
