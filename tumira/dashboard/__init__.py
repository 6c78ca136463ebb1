"""What does a customer see in the browser?"""
