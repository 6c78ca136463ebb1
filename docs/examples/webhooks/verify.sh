#!/bin/sh
# Checks that Tumira sent an event, and that it is recent. Takes the three headers, and the body as it came on standard input:
# WEBHOOK_SECRET=whsec_… sh verify.sh WEBHOOK_ID WEBHOOK_TIMESTAMP WEBHOOK_SIGNATURE <body
# For trials only: the key is visible on the command line of openssl for a moment.
set -euf

tolerance_s=300
id=$1 timestamp=$2 signatures=$3

case $timestamp in
'' | *[!0-9]* | ?????????????*) echo 'The timestamp is not a number of seconds.' && exit 1 ;;
esac
age_s=$(($(date +%s) - timestamp))
if [ "$age_s" -gt "$tolerance_s" ] || [ "$age_s" -lt "-$tolerance_s" ]; then
    echo 'The timestamp is more than five minutes from the clock of this machine.'
    exit 1
fi

key=$(printf %s "${WEBHOOK_SECRET#whsec_}" | openssl base64 -d -A | od -An -v -tx1 | tr -d ' \n')
expected=v1,$({ printf '%s.%s.' "$id" "$timestamp" && cat; } |
    openssl dgst -sha256 -mac HMAC -macopt "hexkey:$key" -binary | openssl base64 -A)

# While a secret is being changed there are two signatures; one match is enough.
for signature in $signatures; do
    if [ "$signature" = "$expected" ]; then
        echo 'The event is genuine.'
        exit 0
    fi
done
echo 'No signature fits: the secret or the body is another.'
exit 1
