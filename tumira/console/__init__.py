"""What does the operator see and steer in the browser?"""
