"""What do payment providers tell us?"""
