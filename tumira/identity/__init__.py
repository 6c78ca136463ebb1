"""Sign-up, sign-in, second factors and operators."""
