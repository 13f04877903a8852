#!/bin/bash
#
# Stand-ins for what a DevStack plugin may call: files are really written, processes and
# other services are only noted, one call a line, in $TOP/calls.
#
#   TOP=directory BIN=directory-of-python ENABLED_SERVICES=a,b source devstack_stubs.sh
# shellcheck disable=SC2034

set -o errexit

DEST=$TOP/dest
DATA_DIR=$TOP/data
NOVA_CONF_DIR=$TOP/etc/nova
NOVA_CONF=$NOVA_CONF_DIR/nova.conf
NOVA_BIN_DIR=$BIN
IRONIC_CONF_FILE=$TOP/etc/ironic.conf
PLACEMENT_CONF_DIR=$TOP/etc/placement
TEMPEST_CONFIG=$TOP/etc/tempest.conf
LAAS_CONF_DIR=$TOP/etc/laas
CLOUD=$TOP/cloud

STACK_USER=$(id -un)
ENABLE_DEBUG_LOG_LEVEL=True
SERVICE_PROTOCOL=http
[[ ,$ENABLED_SERVICES, != *,tls-proxy,* ]] || SERVICE_PROTOCOL=https
SERVICE_HOST=192.0.2.7
SERVICE_TIMEOUT=60
SERVICE_PASSWORD=secret
SERVICE_PROJECT_NAME=service
SERVICE_DOMAIN_NAME=Default
REGION_NAME=RegionOne
KEYSTONE_SERVICE_URI=$SERVICE_PROTOCOL://$SERVICE_HOST/identity

mkdir -p "$DEST" "$DATA_DIR" "$NOVA_CONF_DIR" "$PLACEMENT_CONF_DIR" "$CLOUD/aggregates"

function _note {
    echo "$*" >>"$TOP/calls"
}


# Files
# -----

# Print the file with the option's lines taken out, and the new ones behind its section's
# header or, with in_place, where the first of them was: _ini_write in_place values...
function _ini_write {
    local file=$1 section=$2 option=$3 in_place=$4
    shift 4
    touch "$file"
    grep -qxF "[$section]" "$file" || printf '\n[%s]\n' "$section" >>"$file"
    printf '%s\n' "$@" | awk -v section="[$section]" -v option="$option" -v keep="$in_place" '
        NR == FNR { if ($0 != "") lines = lines option " = " $0 "\n"; next }
        /^\[/ { inside = ($0 == section) }
        inside && match($0, "^" option "[ \t]*=") {
            if (keep && !done) { printf "%s", lines; done = 1 }
            next
        }
        { print }
        inside && $0 == section && !keep { printf "%s", lines }
    ' - "$file" >"$file.new"
    mv "$file.new" "$file"
}

function iniget_multiline {
    [[ -f $1 ]] || return 0
    awk -v section="[$2]" -v option="$3" '
        /^\[/ { inside = ($0 == section) }
        inside && sub("^" option "[ \t]*=[ \t]*", "") { found = found $0 " " }
        END { sub(" $", "", found); print found }
    ' "$1"
}

function iniget {
    iniget_multiline "$@"
}

function ini_has_option {
    [[ -n $(iniget "$@") ]]
}

function iniset {
    local in_place=""
    ini_has_option "$1" "$2" "$3" && in_place=yes
    _ini_write "$1" "$2" "$3" "$in_place" "$4"
}

function iniset_multiline {
    local file=$1 section=$2 option=$3
    shift 3
    _ini_write "$file" "$section" "$option" "" "$@"
}

function inidelete {
    _ini_write "$1" "$2" "$3" ""
}


# DevStack
# --------

function define_plugin { :; }
function echo_summary { :; }
function setup_logging { iniset "$1" DEFAULT use_stderr True; }

function enable_service {
    local service
    for service in "$@"; do
        [[ ,$DISABLED_SERVICES, == *,$service,* ]] || ENABLED_SERVICES+=,$service
    done
}

function is_service_enabled {
    [[ ,$ENABLED_SERVICES, == *,$1,* ]]
}

function die {
    echo "die: ${*:2}" >&2
    exit 1
}

function sudo { "$@"; }
function get_python_exec_prefix { echo "$BIN"; }
function setup_develop { _note setup_develop "$@"; }
function run_process { _note run_process "$@"; }
function stop_process { _note stop_process "$@"; }
function wait_for_service { _note wait_for_service "$@"; }
function which { echo "/usr/bin/$1"; }

function write_uwsgi_config {
    _note write_uwsgi_config "$@"
    rm -f "$1"
    iniset "$1" uwsgi module "$2"
    iniset "$1" uwsgi enable-threads true
}

function remove_uwsgi_config {
    _note remove_uwsgi_config "$@"
    rm -f "$1"
}

function is_nova_ready { _note is_nova_ready; }

cat >"$BIN/nova-manage" <<END
#!/bin/sh
echo "nova-manage \$*" >>"$TOP/calls"
touch "$TOP/discovered"
END
chmod +x "$BIN/nova-manage"

function recreate_database {
    _note recreate_database "$1"
    rm -f "$TOP/$1.sqlite"
}

function database_connection_url { echo "sqlite:///$TOP/$1.sqlite"; }

function iniset_rpc_backend {
    is_service_enabled rabbit || return 0
    iniset "$2" DEFAULT transport_url rabbit://stackrabbit:secret@192.0.2.7:5672/
}

function configure_keystoneauth {
    local option
    for option in "auth_type password" "interface public" "auth_url $KEYSTONE_SERVICE_URI" \
        "username $2" "password $SERVICE_PASSWORD" "user_domain_name $SERVICE_DOMAIN_NAME" \
        "project_name $SERVICE_PROJECT_NAME" "project_domain_name $SERVICE_DOMAIN_NAME"; do
        iniset "$1" "$3" "${option%% *}" "${option#* }"
    done
}

function configure_keystone_authtoken_middleware {
    configure_keystoneauth "$1" "$2" keystone_authtoken
    iniset "$1" keystone_authtoken www_authenticate_uri "$KEYSTONE_SERVICE_URI"
    iniset "$1" keystone_authtoken memcached_servers 192.0.2.7:11211
}


# A cloud: an aggregate is a file with a host a line, everything else is a file
# ----------------------------------------------------------------------------

function _have { touch "$CLOUD/$1"; }
function create_service_user { _have "user $1"; }
function get_or_create_role { _have "role $1"; }
function get_or_add_user_project_role { _have "assignment $1 $2 $3"; }
function get_or_create_service { _have "service $2"; }
function get_or_create_endpoint { _have "endpoint $1 $2"; }

function openstack {
    _note openstack "$@"
    local all=$* name=${*: -1}
    case "${all#--os-cloud * }" in
        "aggregate show"*hosts) sed "s/.*/'&'/" "$CLOUD/aggregates/$5" | paste -sd , | sed 's/.*/[&]/' ;;
        "aggregate show"*) [[ -f $CLOUD/aggregates/$5 ]] ;;
        "aggregate create"*) touch "$CLOUD/aggregates/$name" ;;
        "aggregate set"*) [[ -f $CLOUD/aggregates/$name ]] ;;
        "aggregate list"*) (cd "$CLOUD/aggregates" && printf '%s\n' *) ;;
        "aggregate add host"*)
            [[ -f $TOP/discovered ]] || die 0 "host $name is not mapped to a cell"
            echo "$name" >>"$CLOUD/aggregates/$6"
            ;;
        "compute service set --enable"*) : ;;
        "aggregate remove host"*) sed -i "/^$name$/d" "$CLOUD/aggregates/$6" ;;
        "aggregate delete"*) [[ ! -s $CLOUD/aggregates/$name ]] && rm "$CLOUD/aggregates/$name" ;;
        "baremetal node list"*) printf '%s\n' node-1 node-0 node-10 ;;
        "compute service list"*) printf '%s\n' stack1 stack2 stack10 stack3 ;;
        "service delete"*) rm "$CLOUD/service $name" "$CLOUD"/endpoint\ "$name"* ;;
        "user delete"*) rm "$CLOUD/user $name" "$CLOUD"/assignment\ *" $name "* ;;
        "role delete"*) rm "$CLOUD/role $name" ;;
        *) die 0 "openstack $*" ;;
    esac
}
