"""How are payment providers spoken to?"""
