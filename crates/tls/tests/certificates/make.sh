#!/bin/sh
# Makes the certificates that the tests use, anew: with OpenSSL 3, in this directory. They are good for a hundred years, but for
# those called expired, and those of the future. The authorities' keys are thrown away.
set -eu
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

key() { openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1" 2>/dev/null; }

# authority NAME FILE
authority() {
    key "$work/$2.key"
    openssl req -x509 -new -key "$work/$2.key" -subj "/O=Plinth Tests/CN=$1" -days 36500 \
        -addext "keyUsage=critical,keyCertSign,cRLSign" -out "$2.crt"
}

# signed AUTHORITY FILE KEY SUBJECT BEGIN END [PURPOSE]
signed() {
    openssl req -new -key "$3" -subj "$4" -out "$work/request"
    : > "$work/index"
    printf '%s\n' "[ca]" "default_ca=it" "[it]" "database=$work/index" "new_certs_dir=$work" "default_md=sha256" \
        "policy=any" "rand_serial=yes" "unique_subject=no" "[any]" "countryName=optional" "organizationName=optional" \
        "commonName=optional" "[more]" "subjectAltName=IP:127.0.0.1,DNS:localhost" \
        "extendedKeyUsage=${7:-serverAuth,clientAuth}" "basicConstraints=CA:FALSE" > "$work/config"
    openssl ca -batch -notext -config "$work/config" -extensions more -cert "$1.crt" -keyfile "$work/$1.key" \
        -in "$work/request" -startdate "$5" -enddate "$6" -out "$2" 2>/dev/null
}

authority "Authority" ca
authority "Another Authority" other-ca
key server.key
key client.key
signed ca server.crt server.key "/C=DE/O=Shop/CN=db-1" 20200101000000Z 21200101000000Z
signed ca client.crt client.key "/C=DE/O=Shop/CN=till-7" 20200101000000Z 21200101000000Z
signed ca expired-server.crt server.key "/C=DE/O=Shop/CN=db-1" 20200101000000Z 20210101000000Z
signed ca expired-client.crt client.key "/C=DE/O=Shop/CN=till-7" 20200101000000Z 20210101000000Z
signed other-ca stranger-server.crt server.key "/C=DE/O=Shop/CN=db-1" 20200101000000Z 21200101000000Z
signed other-ca stranger-client.crt client.key "/C=DE/O=Shop/CN=till-7" 20200101000000Z 21200101000000Z
signed ca future-server.crt server.key "/C=DE/O=Shop/CN=db-1" 21000101000000Z 21200101000000Z
signed ca future-client.crt client.key "/C=DE/O=Shop/CN=till-7" 21000101000000Z 21200101000000Z
signed ca server-only.crt server.key "/C=DE/O=Shop/CN=db-1" 20200101000000Z 21200101000000Z serverAuth
signed ca client-only.crt client.key "/C=DE/O=Shop/CN=till-7" 20200101000000Z 21200101000000Z clientAuth
openssl req -x509 -new -key client.key -subj "/O=Nobody/CN=myself" -days 36500 -out self-signed.crt
# Of version 1, as `openssl x509 -req` makes them where no extensions are named.
openssl req -new -key client.key -subj "/O=Shop/CN=old" -out "$work/request"
openssl x509 -req -in "$work/request" -signkey client.key -days 36500 -out version-1.crt 2>/dev/null
openssl pkcs8 -topk8 -in client.key -out encrypted.key -passout pass:plinth
cat server.crt server.key > server.pem
