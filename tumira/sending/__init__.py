"""Sends: from an API call or a form to paid messages in the queue."""
