#!/bin/sh
# Installs servers and the directory for systemd: sh deploy/install.sh, as root, in the checkout. Run
# it again after an update, and after you have put files into /etc/npucall: the user npucall, as which
# everything runs, has to read them, and to write a usage_file.
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
  echo "install: expected Python 3.11 or newer, found $("$python" --version); set PYTHON" >&2
  exit 1
}
getent passwd npucall >/dev/null ||
  useradd --system --user-group --home-dir /var/lib/npucall --shell /usr/sbin/nologin npucall
[ -x /opt/npucall/bin/python ] || "$python" -m venv /opt/npucall
pins=constraints.txt
[ ! -f "$pins" ] || set -- -c "$pins"
/opt/npucall/bin/pip install "$@" ./proto './server[auth,metrics]'
install -d -m 750 /etc/npucall
chown -R npucall: /etc/npucall
# With the authority's key a server could make certificates of any name.
find /etc/npucall -name ca.key -exec chown root: {} +
install -m 644 deploy/npucall-cpu@.service deploy/npucall-directory.service /etc/systemd/system/
if getent group HwHiAiUser >/dev/null; then
  install -m 644 deploy/npucall-server@.service /etc/systemd/system/
else
  echo "install: no group HwHiAiUser, to which the NPU's driver gives the devices: install the driver" \
    "first, then run this again. Until then there are only npucall-cpu@ and npucall-directory" >&2
fi
systemctl daemon-reload
